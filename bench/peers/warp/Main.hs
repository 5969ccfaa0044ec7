{-# LANGUAGE OverloadedStrings #-}
-- Haskell's Warp, with the caches for descriptors and file information of the original
-- measurements. Usage: warp PORT FOLDER
module Main (main) where

import Control.Concurrent (threadDelay)
import qualified Data.ByteString as B
import qualified Data.ByteString.Builder as B
import qualified Data.ByteString.Char8 as C
import qualified Data.Text as T
import Network.HTTP.Types (hContentType, status200)
import Network.Wai
import Network.Wai.Handler.Warp
import System.Environment (getArgs)

main :: IO ()
main = do
    [port, folder] <- getArgs
    page <- B.readFile (folder ++ "/index.html")
    runSettings (settings (read port)) (app page folder)
  where
    settings port =
        setHost "127.0.0.1" $
            setPort port $
                setFdCacheDuration 10 $
                    setFileInfoCacheDuration 10 defaultSettings

app :: B.ByteString -> FilePath -> Application
app page folder request respond = case pathInfo request of
    ["memory"] -> inMemory
    ["slow"] -> threadDelay 10000 >> inMemory
    [] -> file "index.html"
    [name] -> file (T.unpack name)
    _ -> respond (responseLBS status200 [] "")
  where
    inMemory = respond (responseBuilder status200 (html (B.length page)) (B.byteString page))
    file name = respond (responseFile status200 [type_] (folder ++ "/" ++ name) Nothing)
    html n = [type_, ("Content-Length", C.pack (show n))]
    type_ = (hContentType, "text/html")
